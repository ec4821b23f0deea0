// Purpose: the part of HTTP/1.1 (RFC 9112) that the service and its load generator speak: bodiless GET
// requests and answers to them, from any server.
// Ownership: HttpRequest has views into the caller's buffer; the reader owns what it keeps of an answer's
// head.
// Thread rule: pure; a reader has one user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace flash {

enum class HttpParse { Incomplete, Complete, Malformed };

inline constexpr std::size_t kHttpHeadMax = 8192;            // of a request
inline constexpr std::size_t kHttpResponseHeadMax = 65'536;  // servers set cookies and policies

struct HttpRequest {
  HttpParse state = HttpParse::Incomplete;
  std::string_view method;
  std::string_view path;
  bool keep_alive = true;
  std::size_t size = 0;  // bytes of the buffer that it took
};
HttpRequest parse_http_request(std::string_view buffer);

/// Reads one answer to a GET from bytes as they come, in pieces of any size, and finds its end (RFC
/// 9112, 6.3): no body at all (204, 304), chunks, a length, or the end of the connection. Bodies are passed
/// over, not kept, so they may be of any length and in any encoding; interim answers (100, 103) are passed
/// over as well.
class HttpResponseReader {
 public:
  /// Takes bytes up to the end of the answer and returns how many they were. Once the answer is complete or
  /// malformed it takes none.
  std::size_t read(std::string_view bytes);
  /// The connection ended: that completes a body which has no other end, and cuts every other answer short.
  void end_of_stream();

  HttpParse state() const { return state_; }
  bool begun() const { return begun_; }                  // a byte of it was read
  int status() const { return status_; }                 // 100 to 999, once complete
  bool keep_alive() const { return keep_alive_; }        // another request may follow on this connection
  std::string_view trouble() const { return trouble_; }  // what is malformed

 private:
  enum class Part { Head, Length, ToTheEnd, ChunkSize, Chunk, ChunkEnd, Trailer };
  void take_line();
  void take_head();
  void take_chunk_size(std::string_view line);
  void malformed(std::string_view trouble);

  HttpParse state_ = HttpParse::Incomplete;
  Part part_ = Part::Head;
  bool begun_ = false;
  bool keep_alive_ = true;
  int status_ = 0;
  int interim_ = 0;
  std::uint64_t left_ = 0;      // bytes of the body or of the chunk
  std::string text_;            // of the head, of a chunk's size, of the trailer
  std::size_t line_begin_ = 0;  // in text_
  std::string_view trouble_;
};

std::string format_http_request(std::string_view host, std::string_view path);
std::string format_http_response(int status, std::string_view body, bool keep_alive);

}  // namespace flash
