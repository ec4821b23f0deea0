#include "bench/allocation_count.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FLASH_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<std::uint64_t> calls, bytes;
std::atomic<std::int64_t> live;
}  // namespace

#ifdef FLASH_COUNTS_ALLOCATIONS
// glibc manual, "Replacing malloc": these must be replaced together. glibc keeps its own under __libc_ names.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

namespace {
void* counted(void* p, std::size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
  live.fetch_add(static_cast<std::int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  return p;
}
}  // namespace

void* malloc(std::size_t size) {
  return counted(__libc_malloc(size), size);
}
void* calloc(std::size_t n, std::size_t size) {
  return counted(__libc_calloc(n, size), n * size);
}
void* realloc(void* old, std::size_t size) {
  live.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(old)), std::memory_order_relaxed);
  return counted(__libc_realloc(old, size), size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  return counted(__libc_memalign(alignment, size), size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  *out = memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}
void free(void* p) {
  live.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  __libc_free(p);
}
}
#endif

namespace flash::bench {

AllocationCount allocation_count() {
#ifdef FLASH_COUNTS_ALLOCATIONS
  return {true, calls.load(), bytes.load(), live.load()};
#else
  return {};
#endif
}

}  // namespace flash::bench
