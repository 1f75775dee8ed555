// The XML that topologies and plans are written in: elements and attributes.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace exchange {

struct element {
    std::string name;
    std::map<std::string, std::string> attributes;
    std::vector<element> children;
    long line = 0;

    /// The value of an attribute. Throws std::runtime_error where there is none.
    std::string text(const std::string& attribute) const;
    /// The number that an attribute begins with: "16.0 GT/s PCIe".
    double number(const std::string& attribute) const;
    /// The whole number that an attribute is.
    int integer(const std::string& attribute) const;
    int integer_or(const std::string& attribute, int otherwise) const;
};

/// Reads a document, by pugixml; comments, declarations and instructions are passed over. Throws std::runtime_error
/// that names the line, also where elements are nested more than 64 deep, or where there is text between them.
element read_xml(const std::string& text);

/// A text as the value of an attribute.
std::string escaped(const std::string& text);

}  // namespace exchange
