// A group of four from a list; then one whose members come and go: three processes found it, a fourth knocks, and one
// of them is killed.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/elastic.cpp -o elastic
// Run:   ./elastic
#include <colls/colls.hpp>
#include <colls/elastic.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int processes = 4, founders = 3;
constexpr std::uint64_t steps = 1000;

/// By what the processes tell each other their handles here: memory. A folder or a store would do.
struct board {
    std::atomic<int> known;
    char handles[processes][256];
};

void work(int number, colls::endpoint own, const std::vector<std::string>& doors) {
    // example-begin member
    colls::elastic::member m(std::move(own), doors);  // founds the group, or knocks at it
    std::uint64_t step = m.done_by_all();
    while (step < steps || m.epoch() < 3) {
        std::uint64_t x = 1;
        try {
            colls::all_reduce(m.comm(), std::span(&x, 1), colls::sum);
            ++step;
        } catch (const colls::error&) {}
        if (m.update(step)) {  // the boundary: which have come, which have gone?
            step = m.done_by_all();
            if (m.comm().rank() == 0) std::printf("epoch %d: %d members\n", int(m.epoch()), m.comm().size());
        }
        if (number == 1 && m.epoch() == 2) raise(SIGKILL);
    }
    m.leave();
    // example-end
}

}  // namespace

int main() {
    auto* const b =
        static_cast<board*>(mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::vector<pid_t> all;
    for (int number = 0; number < processes; ++number)
        if (all.emplace_back(fork()) == 0) {
            colls::endpoint own = colls::endpoint::open();
            std::strcpy(b->handles[number], own.handle().c_str());
            ++b->known;
            while (b->known < processes) usleep(1000);
            const std::vector<std::string> handles(b->handles, b->handles + processes);
            try {
                {
                    // example-begin join
                    colls::communicator comm = colls::join(own, "attempt 1", handles);  // ranks as listed
                    colls::barrier(comm);
                    // example-end
                }
                work(number, std::move(own), {handles.begin(), handles.begin() + founders});
            } catch (const colls::error& e) {
                std::printf("%s\n", e.what());
                _exit(1);
            }
            _exit(0);
        }
    int right = 0;
    for (const pid_t p : all) {
        int status = 0;
        waitpid(p, &status, 0);
        right += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    std::printf("%d processes came to the end\n", right);
    return right == 3 ? 0 : 1;
}
