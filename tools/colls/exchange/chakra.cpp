// Execution traces in Chakra's binary form.
//
// The facts of the format (mlcommons/chakra, schema/protobuf/et_def.proto and src/third_party/utils/protolib.py;
// astra-sim/astra-sim, astra-sim/workload): one file a rank, a stream of messages, each after its length. The first is
// GlobalMetadata: version 1, attr 2. The others are of type Node: id 1, name 2, type 3, ctrl_deps 4, data_deps 5, attr
// 10. An AttributeProto has a name, 1, and one value: int32_val 7, int64_val 9, uint64_val 13, bool_val 27, string_val
// 29, ...; older feeders look only for the type that they expect. Without is_cpu_op those take a node for one of the
// CPU, where communication is an error.
#include "protobuf.hpp"
#include "trace.hpp"

namespace exchange {

namespace {

using protobuf::message;

constexpr const char* schema_version = "0.0.4";

message named(const std::string& name) { return message().text(1, name); }

message attribute(const std::string& name, const trace_node::value& value) {
    struct encode {
        message to;
        message operator()(bool v) { return to.number(27, v); }
        message operator()(std::int32_t v) { return to.number(7, static_cast<std::uint64_t>(v)); }
        message operator()(std::int64_t v) { return to.number(9, static_cast<std::uint64_t>(v)); }
        message operator()(std::uint64_t v) { return to.number(13, v); }
    };
    return std::visit(encode{named(name)}, value);
}

message encoded(const trace_node& node) {
    message m;
    m.number(1, node.id).text(2, node.name).number(3, static_cast<std::uint64_t>(node.type));
    m.numbers(4, node.ctrl_deps).numbers(5, node.data_deps);
    m.add(10, attribute("is_cpu_op", false));
    for (const auto& [name, value] : node.attributes) m.add(10, attribute(name, value));
    return m;
}

}  // namespace

std::vector<std::string> write_chakra(const colls::any_schedule& s, int n, double bytes, const std::string& name) {
    message metadata;
    metadata.text(1, schema_version).add(2, named("schedule").text(29, name));
    std::vector<std::string> files;
    for (const std::vector<trace_node>& nodes : trace_of(s, n, bytes)) {
        std::string file = metadata.delimited();
        for (const trace_node& node : nodes) file += encoded(node).delimited();
        files.push_back(std::move(file));
    }
    return files;
}

}  // namespace exchange
