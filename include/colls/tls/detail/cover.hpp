// One connection's TLS, and the files that a process shows and trusts.
// IWYU pragma: private, include <colls/tls.hpp>
#pragma once

#include <colls/detail/support/process_lock.hpp>
#include <colls/net/detail/connection/channel.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::tls::detail {

using colls::detail::error_text;

struct releases {
    void operator()(SSL_CTX* c) const { SSL_CTX_free(c); }
    void operator()(SSL* s) const { SSL_free(s); }
    void operator()(BIO_METHOD* m) const { BIO_meth_free(m); }
};
template <class T>
using owned = std::unique_ptr<T, releases>;

/// Why the last call of OpenSSL has failed.
[[gnu::cold]] inline std::string last_error() {
    const unsigned long code = ERR_peek_error();  // its cause: others follow
    if (ERR_SYSTEM_ERROR(code)) return colls::detail::system_text(ERR_GET_REASON(code)).c_str();
    const char* const text = ERR_reason_error_string(code);
    return text ? text : "an error without a name";
}

[[noreturn, gnu::cold]] inline void refuse_file(const char* what, const std::string& file, const std::string& why) {
    throw error(errc::invalid_argument, error_text() << "colls: COLLS_TLS: the " << what << " '"
                                                     << std::string_view(file).substr(0, 200)
                                                     << "' cannot be used: " << why.c_str());
}

/// What the process shows and trusts, of the files that `value` names.
[[gnu::cold]] inline owned<SSL_CTX> read_files(const std::string& value) {
    std::array<std::string, 3> file;
    std::size_t count = 0;
    for (std::size_t at = 0, comma = 0; comma != value.npos; at = comma + 1, ++count) {
        comma = value.find(',', at);
        if (count < 3) file[count] = value.substr(at, comma == value.npos ? comma : comma - at);
    }
    if (count != 3 || file[0].empty() || file[1].empty() || file[2].empty())
        throw error(errc::invalid_argument, error_text()
                                                << "colls: COLLS_TLS is '" << std::string_view(value).substr(0, 200)
                                                << "', not three files with commas between them: CERTIFICATE,KEY,CA");
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);  // a thread (status/) may need it until the process ends
    ERR_clear_error();
    owned<SSL_CTX> all(SSL_CTX_new(TLS_method()));
    if (!all) throw error(errc::unsupported, error_text() << "colls: TLS cannot be used: " << last_error().c_str());
    SSL_CTX* const c = all.get();
    SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(c, 0);
    // The least work first.
    SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384");
    // A program is not to stop for a password.
    SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return 0; });
    if (SSL_CTX_use_certificate_chain_file(c, file[0].c_str()) != 1) refuse_file("certificate", file[0], last_error());
    if (X509_cmp_current_time(X509_get0_notAfter(SSL_CTX_get0_certificate(c))) < 0)
        refuse_file("certificate", file[0], "it has expired");
    if (SSL_CTX_use_PrivateKey_file(c, file[1].c_str(), SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(c) != 1)
        refuse_file("key", file[1], last_error());
    if (SSL_CTX_load_verify_locations(c, file[2].c_str(), nullptr) != 1) refuse_file("CA", file[2], last_error());
    return all;
}

/// The connection's side of OpenSSL. Records pass between its buffers and the socket without a copy, each in one call
/// of the system: the header of the next one is read behind a record. What the socket does not take waits in `out_`.
class cover final : public colls::detail::stream_cover {
public:
    cover(SSL_CTX* context, bool connects) : ssl_(SSL_new(context)) {
        static const BIO_METHOD* const method = own_method().release();
        BIO* const b = ssl_ && method ? BIO_new(method) : nullptr;
        if (b == nullptr) throw std::bad_alloc();
        BIO_set_data(b, this);
        BIO_set_init(b, 1);
        SSL_set_bio(ssl_.get(), b, b);
        connects ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
    }

    ssize_t read(int fd, const iovec* v, int count) override {
        if (!meet(fd)) return answer(0);
        std::size_t all = 0;
        bool more = true;
        for (int i = 0; i < count && more; ++i)
            for (std::size_t at = 0; at < v[i].iov_len && more;) {
                std::size_t n = 0;
                more = SSL_read_ex(ssl_.get(), static_cast<std::byte*>(v[i].iov_base) + at, v[i].iov_len - at, &n) == 1;
                if (!more) note_failure();
                at += n;
                all += n;
            }
        flush(fd);
        return answer(all);
    }
    ssize_t write(int fd, const iovec* v, int count) override {
        if (!meet(fd) && failed_ != 0) return answer(0);
        if (is_known() && !flush(fd)) return errno = EAGAIN, -1;
        if (failed_ != 0) return answer(0);
        std::size_t room = is_known() ? most_taken : record - early_.size(), all = 0;
        std::vector<char>& part = early_;  // of a record
        for (int i = 0; i < count && room > 0; ++i) {
            const auto from = static_cast<const char*>(v[i].iov_base);
            for (std::size_t at = 0, n = 0; at < v[i].iov_len && room > 0; at += n, all += n, room -= n) {
                n = std::min({v[i].iov_len - at, room, record - part.size()});
                if (n == record && is_known() && !encrypt(from + at, n)) return answer(all);
                if (n == record && is_known()) continue;
                part.insert(part.end(), from + at, from + at + n);
                if (part.size() == record && is_known() && !encrypt_part()) return answer(all);
            }
        }
        if (is_known() && !encrypt_part()) return answer(all);
        flush(fd);
        return answer(all);
    }
    bool flush(int fd) override {
        while (sent_ < out_.size()) {
            const ssize_t n = ::send(fd, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && colls::detail::may_try_again(errno)) return false;
            if (n < 0) {
                fail(errno);
                break;
            }
            sent_ += static_cast<std::size_t>(n);
        }
        out_.clear();
        sent_ = 0;
        return true;
    }
    bool has_unsent() const override { return failed_ == 0 && (!early_.empty() || sent_ < out_.size()); }
    bool has_unread() const override { return failed_ == 0 && SSL_pending(ssl_.get()) > 0; }
    bool is_known() const override { return SSL_is_init_finished(ssl_.get()) == 1; }
    const char* why() const override { return why_.c_str(); }

private:
    static constexpr std::size_t record = std::size_t{16} << 10, header = 5;
    static constexpr std::size_t most_taken = 8 * record;  // what is encrypted in one call

    // Advances until both sides know each other. False: something must arrive first, or it has failed.
    bool meet(int fd) {
        fd_ = fd;
        if (failed_ != 0) return false;
        ERR_clear_error();
        if (is_known()) return true;
        const bool done = SSL_do_handshake(ssl_.get()) == 1;
        if (!done) note_failure();
        if (done) encrypt_part();
        flush(fd);
        return done;
    }
    bool encrypt(const char* from, std::size_t bytes) {
        std::size_t n = 0;
        if (SSL_write_ex(ssl_.get(), from, bytes, &n) == 1) return true;
        note_failure();
        return false;
    }
    bool encrypt_part() {
        if (early_.empty()) return true;
        const bool right = encrypt(early_.data(), early_.size());
        early_.clear();
        return right;
    }

    // What a call returns that has moved so many bytes.
    ssize_t answer(std::size_t bytes) const {
        if (bytes > 0) return static_cast<ssize_t>(bytes);
        if (failed_ == 0 && ended_) return 0;
        errno = failed_ != 0 ? failed_ : EAGAIN;
        return -1;
    }
    [[gnu::cold]] void fail(int code) {
        if (failed_ == 0) failed_ = code;
    }
    void note_failure() {
        if (const int what = SSL_get_error(ssl_.get(), 0); what != SSL_ERROR_WANT_READ && what != SSL_ERROR_WANT_WRITE)
            name_failure(what);
    }
    [[gnu::cold]] void name_failure(int what) {
        if (what == SSL_ERROR_ZERO_RETURN) ended_ = true;
        if (ended_ || failed_ != 0) return;
        fail(EPROTO);
        const long verified = SSL_get_verify_result(ssl_.get());
        const int reason = ERR_GET_REASON(ERR_peek_error());
        const std::string text = last_error();
        if (verified != X509_V_OK)
            why_ = std::string("TLS: the other side's certificate is not accepted: ") +
                   X509_verify_cert_error_string(verified);
        else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
            why_ = "TLS: the other side has shown no certificate";
        else if (reason > SSL_AD_REASON_OFFSET)
            why_ = "TLS: the other side does not accept this one's certificate: " + text;
        else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
                 reason == SSL_R_BAD_RECORD_TYPE)
            why_ = "the other side does not speak TLS: is COLLS_TLS set on all ranks?";
        else
            why_ = "TLS: " + text;
    }

    // ---- as OpenSSL sees the socket ----

    static owned<BIO_METHOD> own_method() {
        owned<BIO_METHOD> m(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "colls"));
        if (!m) return m;
        BIO_meth_set_read(m.get(), [](BIO* b, char* to, int bytes) {
            return static_cast<cover*>(BIO_get_data(b))->take(b, to, static_cast<std::size_t>(bytes));
        });
        BIO_meth_set_write(m.get(), [](BIO* b, const char* from, int bytes) {
            static_cast<cover*>(BIO_get_data(b))->give(from, static_cast<std::size_t>(bytes));
            return bytes;
        });
        BIO_meth_set_ctrl(m.get(), [](BIO*, int what, long, void*) -> long { return what == BIO_CTRL_FLUSH; });
        return m;
    }
    void give(const char* from, std::size_t bytes) {
        if (sent_ == out_.size()) {
            const ssize_t n = ::send(fd_, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && !colls::detail::may_try_again(errno)) return fail(errno);
            from += n > 0 ? n : 0;
            bytes -= n > 0 ? static_cast<std::size_t>(n) : 0;
        }
        out_.insert(out_.end(), from, from + bytes);
    }
    int take(BIO* b, char* to, std::size_t bytes) {
        BIO_clear_retry_flags(b);
        const std::size_t kept = std::min(bytes, got_);
        if (kept > 0) {
            std::memcpy(to, next_, kept);
            std::memmove(next_, next_ + kept, got_ -= kept);
            return static_cast<int>(kept);
        }
        iovec v[2] = {{to, bytes}, {next_, header}};
        ssize_t n;
        do n = bytes > header ? readv(fd_, v, 2) : ::recv(fd_, to, bytes, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n == 0) ended_ = true;
        if (n < 0 && colls::detail::may_try_again(errno)) BIO_set_retry_read(b);
        if (n < 0 && !colls::detail::may_try_again(errno)) fail(errno);
        if (n <= 0) return static_cast<int>(n);
        const std::size_t all = static_cast<std::size_t>(n);
        if (all > bytes) got_ = all - bytes;
        return static_cast<int>(std::min(all, bytes));
    }

    owned<SSL> ssl_;
    int fd_ = -1;              // of the present call
    int failed_ = 0;           // an errno
    bool ended_ = false;       // the other side has closed the connection
    std::vector<char> early_;  // before the two know each other; and what does not fill a record
    std::vector<char> out_;
    std::size_t sent_ = 0;  // of it
    char next_[header];     // what has been read of the next record's header
    std::size_t got_ = 0;   // bytes of it
    std::string why_;
};

/// Lets COLLS_TLS name files in a program that includes this header.
inline const bool installed = [] {
    colls::detail::make_cover = [](bool connects) -> std::unique_ptr<colls::detail::stream_cover> {
        static auto& known = *new std::vector<std::pair<std::string, owned<SSL_CTX>>>;  // a thread may outlive main
        const std::string value = colls::detail::variable("COLLS_TLS");
        const colls::detail::process_lock lock;
        auto at = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == value; });
        if (at == known.end()) at = known.emplace(known.end(), value, read_files(value));
        return std::make_unique<cover>(at->second.get(), connects);
    };
    return true;
}();

}  // namespace colls::inline v1::tls::detail
