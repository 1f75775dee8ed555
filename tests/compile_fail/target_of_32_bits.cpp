// Preprocessed only: not every machine has the headers of another target.
// expect: error: .?(#error )?.?colls needs a target of 64 bits.*fatal error: .?colls/the_error_above_says_why
// errors: 2
// flags: -U__SIZEOF_POINTER__ -D__SIZEOF_POINTER__=4
#include <colls/colls.hpp>
