#include "products.hpp"

#ifdef EXAMPLE_PRODUCTS
EXAMPLE_PRODUCTS(, float)
EXAMPLE_PRODUCTS(, double)
#endif
