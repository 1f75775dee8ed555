// The words of the licence texts that every Debian system has.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace example {

struct corpus {
    std::vector<std::string> words;  // each once, the most frequent first
    std::vector<int> text;           // indices of words, file after file in the order of their names
};

/// The words, in lower case, of all regular files of a folder. Throws std::runtime_error where it has none.
inline corpus load_words(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(folder))
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
    std::ranges::sort(files);
    std::vector<std::string> text;
    for (const auto& path : files) {
        std::ifstream file(path);
        std::string word;
        for (std::istreambuf_iterator<char> at(file), end; at != end; ++at)
            if (const auto c = static_cast<unsigned char>(*at); std::isalpha(c) != 0)
                word += static_cast<char>(std::tolower(c));
            else if (!word.empty())
                text.push_back(std::exchange(word, {}));
        if (!word.empty()) text.push_back(word);
    }
    if (text.empty())
        throw std::runtime_error("no words in the files of " + folder.string() + ": name a folder of texts");
    std::map<std::string, long> counts;
    for (const std::string& word : text) ++counts[word];
    corpus all;
    for (const auto& [word, count] : counts) all.words.push_back(word);
    std::ranges::stable_sort(all.words, [&](const auto& a, const auto& b) { return counts[a] > counts[b]; });
    std::map<std::string, int> ids;
    for (std::size_t i = 0; i < all.words.size(); ++i) ids[all.words[i]] = static_cast<int>(i);
    for (const std::string& word : text) all.text.push_back(ids[word]);
    return all;
}

}  // namespace example
