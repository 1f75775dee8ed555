// expect: error: .?(#error )?.?colls needs C\+\+20.*fatal error: .?colls/the_error_above_says_why
// errors: 2
// flags: -std=c++17
#include <colls/colls.hpp>
