// A rank whose own arguments are wrong gets the error at once. The ranks that wait for it are told so, unless it makes
// the call with right arguments after all.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>

#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>

using namespace support;

namespace {

struct figures {
    std::atomic<int> told, other, right;
};
template <class F>
std::string on(const std::string& transport, int n, F f) {
    std::string text = "no error";
    try {
        run_over(transport, n, f);
    } catch (const colls::error& e) {
        text = e.what();
    }
    return text;
}

}  // namespace

TEST_CASE("refusal: ranks that wait for one with wrong arguments are told why", "[refusal]") {
    for (const std::string& transport : every_transport())
        for (const std::size_t count : {std::size_t{3}, std::size_t{30'000}})
            for (const bool used_before : {false, true}) {
                common<figures> got;
                on(transport, 4, [&](colls::communicator& comm) {
                    std::vector<int> own(count, comm.rank()), all(comm.rank() == 0 ? 4 * count - 4 : 0);
                    if (used_before) colls::all_reduce(comm, own, colls::sum);
                    try {
                        colls::gather(comm, own, all, 0);
                        colls::barrier(comm);  // a gather of few bytes does not wait for its root
                        ++got->other;
                    } catch (const colls::error& e) {
                        const std::string text = e.what();
                        if (comm.rank() == 0)
                            got->right += e.code() == colls::errc::invalid_argument &&
                                          says(text, "the output holds " + std::to_string(4 * count - 4));
                        else if (e.code() == colls::errc::peer_failed && e.peer() == 0 && says(text, "refused") &&
                                 says(text, "the output holds"))
                            ++got->told;
                        else
                            std::fprintf(stderr, "%s\n", text.c_str()), ++got->other;
                    }
                    // Rank 0 is not in any call of the library while the others wait.
                    for (int i = 0; i < 20'000 && got->told + got->other < 3; ++i) usleep(1'000);
                });
                INFO(transport << ", count " << count << ", used before: " << used_before);
                CHECK(got->right == 1);
                CHECK(got->told == 3);
                CHECK(got->other == 0);
            }
}

TEST_CASE("refusal: a rank that corrects its arguments completes the call for all", "[refusal]") {
    for (const std::string& transport : every_transport())
        for (const std::size_t count : {std::size_t{3}, std::size_t{30'000}}) {
            common<figures> got;
            const std::string text = on(transport, 4, [&](colls::communicator& comm) {
                for (int turn = 0; turn < 5; ++turn) {
                    std::vector<int> own(count, comm.rank() + turn), all(4 * count), few(2);
                    if (comm.rank() == turn % 4) try {
                            colls::all_gather(comm, own, few);
                        } catch (const colls::error& e) {
                            got->told += e.code() == colls::errc::invalid_argument;
                        }
                    colls::all_gather(comm, own, all);
                    got->right += all[0] == turn && all[4 * count - 1] == 3 + turn;
                }
                // A plan is a call, too.
                std::vector<int> x(count, 1);
                auto plan = colls::prepare::all_reduce(comm, x, colls::sum);
                if (comm.rank() == 2) try {
                        colls::broadcast(comm, x, 4);
                    } catch (const colls::error& e) {
                        got->told += e.code() == colls::errc::invalid_argument;
                    }
                plan.run();
                usleep(comm.rank() == 2 ? 150'000
                                        : 0);  // the others wait for it: it is slow, and its last call was accepted
                colls::barrier(comm);
                got->right += x[count - 1] == 4;
            });
            INFO(transport << ", count " << count << ": " << text);
            CHECK(text == "no error");
            CHECK(got->told == 6);
            CHECK(got->right == 24);
        }
}
