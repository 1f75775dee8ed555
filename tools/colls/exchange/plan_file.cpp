#include "plan_file.hpp"

#include "msccl.hpp"
#include "mscclpp.hpp"

#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace exchange {

bool names_plan(const std::string& file) { return file.ends_with(".xml") || file.ends_with(".json"); }

std::shared_ptr<const plan_schedule> read_plan(const std::string& text, const std::string& file) {
    if (!names_plan(file)) throw refused("plans are files of MSCCL's XML (.xml) and of MSCCL++'s JSON (.json)");
    const bool xml = file.ends_with(".xml");
    auto from = std::make_unique<const imported>(in_rounds(xml ? read_msccl(text) : read_mscclpp(text)));
    const colls::any_schedule schedule = schedule_of(from->table);
    return std::make_shared<const plan_schedule>(
        plan_schedule{xml ? "MSCCL XML" : "MSCCL++ JSON", std::move(from), schedule});
}

std::shared_ptr<const plan_schedule> load_plan(const std::string& file) {
    static std::map<std::string, std::shared_ptr<const plan_schedule>> loaded;
    auto& plan = loaded[file];
    if (!plan) {
        std::ifstream in(file);
        if (!in) throw refused("cannot read " + file);
        std::ostringstream text;
        text << in.rdbuf();
        plan = read_plan(text.str(), file);
    }
    return plan;
}

}  // namespace exchange
