#include "fashion_mnist.hpp"

#include <zlib.h>
#include <Eigen/Core>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace example {

namespace {

constexpr const char* install_hint =
    "install it with 'apt install dataset-fashion-mnist', or name its folder by --data";

/// The bytes of a gzip file. Throws std::runtime_error that names the file.
std::vector<std::uint8_t> read_gzip(const std::filesystem::path& path) {
    if (!std::filesystem::exists(path)) throw std::runtime_error(path.string() + " is missing: " + install_hint);
    const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
    if (!file) throw std::runtime_error("cannot open " + path.string());
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> chunk(1 << 20);
    for (int got; (got = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()))) != 0;) {
        if (got < 0) throw std::runtime_error(path.string() + " is damaged: " + gzerror(file.get(), &got));
        bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + got);
    }
    return bytes;
}

/// An IDX file: two zero bytes, type 8 (unsigned byte), the number of dimensions, each dimension as a big-endian
/// 32-bit number, the data. Returns the data; `shape` receives the dimensions.
std::vector<std::uint8_t> read_idx(const std::filesystem::path& path, std::span<std::size_t> shape) {
    std::vector<std::uint8_t> bytes = read_gzip(path);
    const std::size_t header = 4 + 4 * shape.size();
    if (bytes.size() < header || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != shape.size())
        throw std::runtime_error(path.string() + " is not the IDX file expected here");
    std::size_t total = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
        shape[d] = 0;
        for (std::size_t i = 0; i < 4; ++i) shape[d] = shape[d] << 8 | bytes[4 + 4 * d + i];
        total *= shape[d];
    }
    if (bytes.size() - header != total)
        throw std::runtime_error(path.string() + " is cut short or too long: its header promises " +
                                 std::to_string(total) + " bytes, it holds " + std::to_string(bytes.size() - header));
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
    return bytes;
}

}  // namespace

dataset load_fashion_mnist(const std::filesystem::path& folder, const std::string& part) {
    std::size_t images[3], labels[1];
    const auto pixels = read_idx(folder / (part + "-images-idx3-ubyte.gz"), images);
    dataset data;
    data.labels = read_idx(folder / (part + "-labels-idx1-ubyte.gz"), labels);
    if (images[0] != labels[0]) throw std::runtime_error(folder.string() + ": as many images as labels expected");
    for (const int label : data.labels)
        if (label > 9) throw std::runtime_error(folder.string() + ": a label above 9");
    data.images.resize(static_cast<Eigen::Index>(images[1] * images[2]), static_cast<Eigen::Index>(images[0]));
    std::copy(pixels.begin(), pixels.end(), data.images.data());
    return data;
}

template <class T>
void read_batch(
    const dataset& data, std::span<const int> samples, Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>& x) {
    x.resize(data.pixels(), static_cast<Eigen::Index>(samples.size()));
    Eigen::Index column = 0;
    for (const int s : samples) x.col(column++) = (data.images.col(s).template cast<T>().array() - T(72.9)) / T(90.0);
}

template void read_batch(const dataset&, std::span<const int>, Eigen::MatrixXf&);
template void read_batch(const dataset&, std::span<const int>, Eigen::MatrixXd&);

}  // namespace example
