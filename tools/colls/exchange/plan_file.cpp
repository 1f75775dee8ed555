#include "plan_file.hpp"

#include "msccl.hpp"

#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace exchange {

bool names_plan(const std::string& file) { return file.ends_with(".xml") || file.ends_with(".json"); }

std::shared_ptr<const plan_schedule> read_plan(const std::string& text, const std::string& file) {
    if (!file.ends_with(".xml")) throw refused("plans are files of MSCCL's XML (.xml)");
    auto from = std::make_unique<const imported>(in_rounds(read_msccl(text)));
    const colls::any_schedule schedule = schedule_of(from->table);
    return std::make_shared<const plan_schedule>(plan_schedule{"MSCCL XML", std::move(from), schedule});
}

std::shared_ptr<const plan_schedule> load_plan(const std::string& file) {
    static std::map<std::string, std::shared_ptr<const plan_schedule>> loaded;
    auto& plan = loaded[file];
    if (!plan) {
        std::ifstream in(file);
        if (!in) throw refused("cannot read it");
        std::ostringstream text;
        text << in.rdbuf();
        plan = read_plan(text.str(), file);
    }
    return plan;
}

}  // namespace exchange
