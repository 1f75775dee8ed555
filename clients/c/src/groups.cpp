#include "folder_store.hpp"
#include "handles.hpp"

#include <colls/bootstrap.hpp>
#include <colls/world.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

namespace colls_c {

namespace {

[[noreturn]] void store_failed(const char* function, const char* what, std::string_view key, int code) {
    refuse(function,
        error_text() << "the caller's function " << what << key << " has returned " << code << ", an error",
        COLLS_STORE_FAILED);
}

class store_of_caller final : public colls::key_value_store {
public:
    store_of_caller(const char* function, const colls_store& s) : function_(function), store_(s) {}
    void set(std::string_view key, const void* value, std::size_t bytes) override {
        if (const int code = store_.set(store_.context, std::string(key).c_str(), value, bytes))
            store_failed(function_, "set, for the key ", key, code);
    }
    void get(std::string_view key, void* value, std::size_t bytes) override {
        if (const int code = store_.get(store_.context, std::string(key).c_str(), value, bytes))
            store_failed(function_, "get, for the key ", key, code);
    }

private:
    const char* function_;
    const colls_store& store_;
};

using all_gather_function = int (*)(void* context, const void* own, std::size_t bytes, void* all);
class exchange_of_caller final : public colls::member_exchange {
public:
    exchange_of_caller(const char* function, all_gather_function f, void* context)
        : function_(function), f_(f), context_(context) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        if (const int code = f_(context_, own, bytes, all)) store_failed(function_, "all_gather", "", code);
    }

private:
    const char* function_;
    all_gather_function f_;
    void* context_;
};

/// Memory of colls_allocate, by address. Never destroyed, as the tables of handles.
struct all_memory {
    std::mutex mutex;
    std::unordered_map<void*, colls::memory<std::byte>> by_address;

    static all_memory& get() {
        static all_memory& all = *new all_memory;
        return all;
    }
};

}  // namespace

}  // namespace colls_c

using namespace colls_c;

colls_status colls_world(colls_comm* comm) {
    return made(__func__, comm, [] { return colls::world(); });
}
colls_status colls_world_at(int rank, int size, const char* host, int port, const char* token, colls_comm* comm) {
    return made(__func__, comm, [&, function = __func__] {
        need(function, host, "host");
        need(function, token, "token");
        colls::launch l;
        l.rank = rank;
        l.size = size;
        l.host = host;
        l.port = port;
        l.token = token;
        l.source = function;
        if (const char* const name = std::getenv("COLLS_INTERFACE")) l.interface_name = name;
        return colls::world(l);
    });
}
colls_status colls_bootstrap(int rank, int size, const colls_store* store, const char* name, colls_comm* comm) {
    return made(__func__, comm, [&, function = __func__] {
        need(function, store, "store");
        need(function, name, "name");
        if (store->size < sizeof *store)
            refuse(function, error_text() << "store.size is " << store->size << " and not " << sizeof *store
                                          << ": set it to sizeof(colls_store)");
        if (store->set == nullptr || store->get == nullptr)
            refuse(function, error_text() << "the store has no function " << (store->set ? "get" : "set"));
        store_of_caller s(function, *store);
        return colls::bootstrap(rank, size, s, name);
    });
}
colls_status colls_bootstrap_folder(int rank, int size, const char* folder, const char* name, colls_comm* comm) {
    return made(__func__, comm, [&, function = __func__] {
        need(function, folder, "folder");
        need(function, name, "name");
        folder_store s(rank, folder, name);
        return colls::bootstrap(rank, size, s, name);
    });
}
colls_status colls_bootstrap_exchange(
    int rank, int size, all_gather_function all_gather, void* context, colls_comm* comm) {
    return made(__func__, comm, [&, function = __func__] {
        if (all_gather == nullptr) refuse(function, error_text() << "the function all_gather is NULL");
        exchange_of_caller e(function, all_gather, context);
        return colls::bootstrap(rank, size, e);
    });
}

colls_status colls_rank(colls_comm comm, int* rank) {
    return guarded(__func__, [&, function = __func__] {
        need(function, rank, "rank");
        *rank = object_of(function, comm).rank();
    });
}
colls_status colls_size(colls_comm comm, int* size) {
    return guarded(__func__, [&, function = __func__] {
        need(function, size, "size");
        *size = object_of(function, comm).size();
    });
}
colls_status colls_split(colls_comm comm, int color, int key, colls_comm* part) {
    return guarded(__func__, [&, function = __func__] {
        need(function, part, "part");
        colls::communicator made = object_of(function, comm).split(color, key);
        *part = made.size() == 0 ? nullptr : handle_of<colls_comm>(std::move(made));
    });
}
colls_status colls_shrink(colls_comm comm, colls_comm* rest) {
    return made(__func__, rest, [&, function = __func__] { return object_of(function, comm).shrink(); });
}
colls_status colls_abort(colls_comm comm, const char* why) {
    return guarded(__func__, [&, function = __func__] {
        need(function, why, "why");
        object_of(function, comm).abort(why);
    });
}
colls_status colls_refuse(colls_comm comm, const char* call, const char* why) {
    return guarded(__func__, [&, function = __func__] {
        need(function, call, "call");
        need(function, why, "why");
        colls::communicator& c = object_of(function, comm);
        colls::detail::refuse_call(c.handle(), colls::errc::invalid_argument,
            error_text() << "colls: rank " << c.rank() << " in " << call << ": " << why);
    });
}
colls_status colls_set_timeout(colls_comm comm, double seconds) {
    return guarded(__func__, [&, function = __func__] {
        using duration = std::chrono::duration<double>;
        colls::communicator& c = object_of(function, comm);
        if (!(seconds > 0))
            refuse(function, error_text() << "the deadline is " << seconds << " seconds: it is above 0, or INFINITY");
        c.set_timeout(std::isinf(seconds) ? duration::max() : duration(seconds));
    });
}
colls_status colls_dump(colls_comm comm) {
    return guarded(__func__, [&, function = __func__] { colls::dump(object_of(function, comm)); });
}
colls_status colls_comm_free(colls_comm* comm) { return freed(__func__, comm); }

colls_status colls_allocate(colls_comm comm, size_t bytes, void** data) {
    return guarded(__func__, [&, function = __func__] {
        need(function, data, "data");
        auto memory = object_of(function, comm).allocate<std::byte>(bytes > 0 ? bytes : 1);
        void* const at = memory.data();
        all_memory& all = all_memory::get();
        const std::lock_guard lock(all.mutex);
        all.by_address.emplace(at, std::move(memory));
        *data = at;
    });
}
colls_status colls_deallocate(void** data) {
    return guarded(__func__, [&, function = __func__] {
        need(function, data, "data");
        if (*data == nullptr) return;
        all_memory& all = all_memory::get();
        const std::lock_guard lock(all.mutex);
        if (all.by_address.erase(*data) == 0)
            refuse(function, error_text() << "the address is not one of colls_allocate, or was freed");
        *data = nullptr;
    });
}
