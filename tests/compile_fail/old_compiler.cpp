// expect: error: .?(#error )?.?colls needs g\+\+ 11 or clang 16.*fatal error: .?colls/the_error_above_says_why
// errors: 2
// flags: -U__GNUC__ -D__GNUC__=10 -U__clang_major__ -D__clang_major__=15
#include <colls/colls.hpp>
