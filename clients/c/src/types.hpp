// From the codes of colls.h to element types, operators and options.
#pragma once

#include "handles.hpp"

namespace colls_c {

namespace dynamic = colls::dynamic;

dynamic::element_type type_of(const char* function, colls_type type);
dynamic::reduction op_of(const char* function, colls_op op);
/// Refuses those of a version of which this library knows nothing.
colls_options options_of(const char* function, const colls_options* given);
/// Null for none.
const dynamic::data_layout* layout_of(const char* function, colls_layout layout);

}  // namespace colls_c
