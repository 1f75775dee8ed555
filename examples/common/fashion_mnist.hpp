// Fashion-MNIST: 60,000 + 10,000 grey images of 28 x 28 pixels in ten classes, as gzipped IDX files.
#pragma once

#include <Eigen/Core>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace example {

struct dataset {
    Eigen::Matrix<std::uint8_t, Eigen::Dynamic, Eigen::Dynamic> images;  // one column a sample
    std::vector<std::uint8_t> labels;                                    // 0..9
    int size() const { return static_cast<int>(labels.size()); }
    int pixels() const { return static_cast<int>(images.rows()); }
};

/// `part` is "train" or "t10k". Throws std::runtime_error that names the file.
dataset load_fashion_mnist(const std::filesystem::path& folder, const std::string& part);

/// Fills x with the columns `samples` of the images as numbers of mean about 0 and variance about 1. T: float or
/// double.
template <class T>
void read_batch(const dataset& data, std::span<const int> samples, Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>& x);
/// The same as a new matrix.
template <class T>
auto batch_of(const dataset& data, std::span<const int> samples) {
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> x;
    read_batch(data, samples, x);
    return x;
}

}  // namespace example
