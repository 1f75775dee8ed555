#include "failure.hpp"

#include <colls/error.hpp>

#include <new>

namespace colls_c {

namespace {

struct latest_failure {
    colls_status status = COLLS_OK;
    int rank = -1, peer = -1, round = -1;
    const char* text = "";
    const char* calls = "";
    std::string kept_text, kept_calls;
};
thread_local latest_failure latest;

static_assert(colls::none == -1);
static_assert(static_cast<int>(colls::errc::invalid_argument) == COLLS_INVALID_ARGUMENT);
static_assert(static_cast<int>(colls::errc::unsupported) == COLLS_UNSUPPORTED);
static_assert(static_cast<int>(colls::errc::wrong_schedule) == COLLS_WRONG_SCHEDULE);
static_assert(static_cast<int>(colls::errc::mismatch) == COLLS_MISMATCH);
static_assert(static_cast<int>(colls::errc::timeout) == COLLS_TIMEOUT);
static_assert(static_cast<int>(colls::errc::peer_failed) == COLLS_PEER_FAILED);

colls_status note(colls_status status, const char* text, const char* calls = "", int rank = -1, int peer = -1,
    int round = -1) noexcept {
    latest.status = status;
    latest.rank = rank;
    latest.peer = peer;
    latest.round = round;
    try {
        latest.kept_text = text;
        latest.kept_calls = calls;
        latest.text = latest.kept_text.c_str();
        latest.calls = latest.kept_calls.c_str();
    } catch (...) {
        latest.text = "colls: an error, whose text there is no memory for";
        latest.calls = "";
    }
    return status;
}

}  // namespace

colls_status note_failure(const char* function) noexcept {
    try {
        throw;
    } catch (const colls::error& e) {
        return note(static_cast<colls_status>(e.code()), e.what(), e.calls(), e.rank(), e.peer(), e.round());
    } catch (const failure& e) {
        return note(e.status(), e.what(), "", e.rank());
    } catch (const std::bad_alloc&) {
        return note(COLLS_OUT_OF_MEMORY, error_text() << "colls: " << function << ": there is not enough memory");
    } catch (const std::exception& e) {
        return note(COLLS_INTERNAL, error_text() << "colls: " << function << ": " << e.what());
    } catch (...) {
        return note(COLLS_INTERNAL, error_text() << "colls: " << function << ": an exception of an unknown type");
    }
}

void refuse(const char* function, const error_text& why, colls_status status) {
    throw failure(status, error_text() << "colls: " << function << ": " << why.text());
}

}  // namespace colls_c

using colls_c::latest;

const char* colls_status_name(colls_status status) {
    static constexpr const char* names[] = {"ok", "invalid argument", "unsupported", "wrong schedule", "mismatch",
        "timeout", "peer failed", "invalid handle", "out of memory", "store failed", "internal"};
    const auto i = static_cast<unsigned>(status);
    return i < sizeof names / sizeof *names ? names[i] : "unknown";
}
const char* colls_error_text(void) { return latest.text; }
colls_status colls_error_status(void) { return latest.status; }
int colls_error_rank(void) { return latest.rank; }
int colls_error_peer(void) { return latest.peer; }
int colls_error_round(void) { return latest.round; }
const char* colls_error_calls(void) { return latest.calls; }

int colls_version(void) { return 10000 * COLLS_VERSION_MAJOR + 100 * COLLS_VERSION_MINOR + COLLS_VERSION_PATCH; }
int colls_abi(void) { return COLLS_C_ABI; }
colls_status colls_check_abi(int abi) {
    return colls_c::guarded(__func__, [abi] {
        if (abi != COLLS_C_ABI)
            colls_c::refuse("colls_check_abi", colls_c::error_text()
                                                   << "the program was compiled with a colls.h of ABI " << abi
                                                   << ", and this library has ABI " << COLLS_C_ABI
                                                   << ": compile the program with the colls.h of this library");
    });
}
