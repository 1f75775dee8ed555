#include "plan_file.hpp"

#include "msccl.hpp"
#include "mscclpp.hpp"

#include <colls/verify.hpp>

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace exchange {

bool names_plan(const std::string& file) { return file.ends_with(".xml") || file.ends_with(".json"); }

namespace {

/// A plan with chunks of another size: it must be right, too.
void check(const program& plan, const std::string& size) {
    try {
        const imported from = in_rounds(plan, false);
        const colls::report proof = colls::verify(schedule_of(from.table), from.table.ranks);
        if (!proof.ok()) throw refuted(proof.text());
    } catch (const refuted& e) {
        throw refuted(size + ": " + e.what());
    }
}

}  // namespace

std::shared_ptr<const plan_schedule> read_plan(const std::string& text, const std::string& file) {
    if (!names_plan(file)) throw refused("plans are files of MSCCL's XML (.xml) and of MSCCL++'s JSON (.json)");
    const bool xml = file.ends_with(".xml");
    std::unique_ptr<const imported> from;
    int sizes = 0;
    if (xml) {
        sizes = 1;
        from = std::make_unique<const imported>(in_rounds(read_msccl(text)));
    } else {
        read_mscclpp(text, [&](const program& plan, const std::string& size) {
            if (sizes++ > 0) return check(plan, size);
            from = std::make_unique<const imported>(in_rounds(plan));
        });
    }
    const colls::any_schedule schedule = schedule_of(from->table);
    return std::make_shared<const plan_schedule>(
        plan_schedule{xml ? "MSCCL XML" : "MSCCL++ JSON", std::move(from), schedule, sizes});
}

std::shared_ptr<const plan_schedule> load_plan(const std::string& file) {
    static std::map<std::string, std::shared_ptr<const plan_schedule>> loaded;
    auto& plan = loaded[file];
    if (!plan) {
        std::ifstream in(file);
        if (!in) throw refused("cannot read " + file);
        std::ostringstream text;
        text << in.rdbuf();
        try {
            plan = read_plan(text.str(), file);
        } catch (const refuted& e) {
            throw refuted(file + ": " + e.what());
        } catch (const std::runtime_error& e) {
            throw refused(file + ": " + e.what());
        }
    }
    return plan;
}

}  // namespace exchange
