// Runs kernels that take an input and an output: reads lines `NAME THREADS OUTPUT_BYTES INPUT_IN_HEX`, writes each
// output in hex.
#include "kernels.hpp"
#include "memory.hpp"

#include <cstdlib>
#include <iostream>
#include <string>

int main() {
    std::string name, hex;
    unsigned threads = 0;
    std::size_t bytes = 0;
    while (std::cin >> name >> threads >> bytes >> hex) {
        const emulated::kernel* k = emulated::find_kernel(name);
        if (!k) {
            std::cerr << "there is no kernel " << name << '\n';
            return 1;
        }
        const auto memory = [](std::size_t n) {
            return static_cast<unsigned char*>(std::aligned_alloc(256, (n + 255) / 256 * 256));
        };
        unsigned char *in = memory(hex.size() / 2), *out = memory(bytes);
        for (std::size_t i = 0; i < hex.size() / 2; ++i)
            in[i] = static_cast<unsigned char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
        emulated::add_allocation(in, hex.size() / 2, 0, emulated::memory_kind::device);
        emulated::add_allocation(out, bytes, 0, emulated::memory_kind::device);
        unsigned char* arguments[] = {reinterpret_cast<unsigned char*>(&in), reinterpret_cast<unsigned char*>(&out)};
        emulated::run_grid(*k, arguments, {1}, {threads}, 0, 0, {});
        const char* const digits = "0123456789abcdef";
        std::string text;
        for (std::size_t i = 0; i < bytes; ++i) text += {digits[out[i] / 16], digits[out[i] % 16]};
        std::cout << text << '\n';
        emulated::remove_allocation(in);
        emulated::remove_allocation(out);
        std::free(in);
        std::free(out);
    }
}
