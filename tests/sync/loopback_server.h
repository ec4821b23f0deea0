// Purpose: an HTTP server on loopback that answers each connection with the bytes it is told to.
// Ownership: owns its socket and thread.
// Thread rule: set() from the test's thread.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace flash::sync {

inline std::string http_ok(const std::string& body, const std::string& type = "text/plain; version=0.0.4") {
  return "HTTP/1.1 200 OK\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

class LoopbackServer {
 public:
  explicit LoopbackServer(std::string answer) : answer_(std::move(answer)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd_, reinterpret_cast<sockaddr*>(&in), sizeof in);
    listen(fd_, 16);
    socklen_t size = sizeof in;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&in), &size);
    port_ = ntohs(in.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~LoopbackServer() {
    stop_ = true;
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
    for (const int held : held_) close(held);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/metrics"; }
  void set(std::string answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  /// Takes requests, answers nothing.
  void hang() { hang_ = true; }
  /// Answers, and does not close.
  void hold() { hold_ = true; }
  std::string last_request() {
    const std::lock_guard lock(mutex_);
    return request_;
  }
  int requests() const { return requests_; }

 private:
  void run() {
    while (!stop_) {
      const int client = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      char buffer[4096];
      const ssize_t n = read(client, buffer, sizeof buffer);
      std::string answer;
      {
        const std::lock_guard lock(mutex_);
        request_.assign(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
        answer = answer_;
      }
      ++requests_;
      if (hang_) {
        hanging_ = client;  // one is enough
        continue;
      }
      (void)!send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      if (hold_)
        held_.push_back(client);
      else
        close(client);
    }
  }

  int fd_ = -1, port_ = 0, hanging_ = -1;
  std::mutex mutex_;
  std::string answer_, request_;
  std::atomic<bool> stop_{false}, hang_{false}, hold_{false};
  std::atomic<int> requests_{0};
  std::vector<int> held_;  // the thread's
  std::thread thread_;
};

}  // namespace flash::sync
