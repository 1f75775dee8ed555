// A member of a group that changes, on a host of its own: tests/hosts/check cuts the network between such hosts.
//
//     cut_members FOLDER NUMBER COUNT [store]
//
// With `store` they are a group from a list, which they shrink themselves, and a store in the folder decides.
//
// The members meet by handles in the folder. Once there is a file `cut` there, each says how it goes on: "goes on:
// EPOCH NUMBER,NUMBER,..." after some more steps of a smaller group, or "ends: TEXT".
#include <colls/collectives.hpp>
#include <colls/elastic.hpp>
#include <colls/operators.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

int wrong(const char* what) {
    std::printf("wrong: %s\n", what);
    return 1;
}

std::string listed(const std::vector<int>& who) {
    std::string all;
    for (const int w : who) all += (all.empty() ? "" : ",") + std::to_string(w);
    return all;
}

int run_by_store(
    colls::endpoint& own, const std::vector<std::string>& handles, const std::string& folder, int number, int count) {
    colls::elastic::folder store(folder + "/store");
    colls::communicator comm = colls::join(own, "cut", handles);
    std::ofstream(folder + "/meets." + std::to_string(number)) << 1;
    for (int after = 0, epoch = 1; after < 20;) {
        try {
            std::vector<int> who(static_cast<std::size_t>(comm.size()));
            colls::all_gather(comm, std::vector<int>{number}, who);
            after += comm.size() < count;
            if (after == 20) std::printf("goes on: %d %s\n", epoch, listed(who).c_str());
            usleep(2000);
            continue;
        } catch (const colls::error&) {}
        try {
            comm = colls::elastic::shrink(comm, store, "cut");
            ++epoch;
        } catch (const colls::error& x) {
            std::printf("ends: %s\n", x.what());
            return access((folder + "/cut").c_str(), F_OK) == 0 ? 0 : wrong("it ends before the cut");
        }
    }
    return 0;
}

int run(const std::string& folder, int number, int count, bool by_store) {
    colls::endpoint own = colls::endpoint::open();
    const std::string name = folder + "/handle.";
    std::ofstream(name + "new." + std::to_string(number)) << own.handle() << '\n';
    std::rename((name + "new." + std::to_string(number)).c_str(), (name + std::to_string(number)).c_str());
    std::vector<std::string> handles;
    for (int i = 0; i < count; ++i)
        for (std::string h;; usleep(10'000)) {
            std::ifstream(name + std::to_string(i)) >> h;
            if (h.empty()) continue;
            handles.push_back(h);
            break;
        }
    if (by_store) return run_by_store(own, handles, folder, number, count);
    colls::elastic::member m(std::move(own), handles);
    std::ofstream(folder + "/meets." + std::to_string(number)) << 1;
    for (int after = 0; after < 20;) {
        try {
            std::vector<int> who(static_cast<std::size_t>(m.comm().size()));
            colls::all_gather(m.comm(), std::vector<int>{number}, who);
            std::vector<std::uint64_t> x(500, static_cast<std::uint64_t>(number + 1));
            colls::all_reduce(m.comm(), x, colls::sum);
            std::uint64_t sum = 0;
            for (const int w : who) sum += static_cast<std::uint64_t>(w + 1);
            for (const std::uint64_t v : x)
                if (v != sum) return wrong("a sum");
            for (std::size_t r = 0; r < who.size(); ++r)
                if (m.handles()[r] != handles[static_cast<std::size_t>(who[r])]) return wrong("the members");
            after += m.comm().size() < count;
            if (after == 20) std::printf("goes on: %d %s\n", static_cast<int>(m.epoch()), listed(who).c_str());
            usleep(2000);
        } catch (const colls::error&) {}
        try {
            m.update();
        } catch (const colls::error& x) {
            std::printf("ends: %s\n", x.what());
            return access((folder + "/cut").c_str(), F_OK) == 0 ? 0 : wrong("it ends before the cut");
        }
    }
    m.leave();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    try {
        return run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argc > 4);
    } catch (const std::exception& x) {
        return wrong(x.what());
    }
}
