// Vectors of FLASH_LANES floats and what kernels do with them, for the files that are compiled once per
// instruction set: to be included within their anonymous namespace, where size_t and kLanes are known.

typedef float Vector __attribute__((vector_size(FLASH_LANES * sizeof(float))));
typedef float Unaligned __attribute__((vector_size(FLASH_LANES * sizeof(float)), aligned(4), may_alias));

inline Vector load(const float* p) {
  return *reinterpret_cast<const Unaligned*>(p);
}
inline void store(float* p, Vector v) {
  *reinterpret_cast<Unaligned*>(p) = v;
}
inline Vector all(float x) {
  return x - Vector{};
}
constexpr size_t round_up(size_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

typedef int Integers __attribute__((vector_size(FLASH_LANES * sizeof(int))));
inline Integers same(int x) {
  return x - Integers{};
}

/// tanh x = (1 - e) / (1 + e), e = exp(-2 |x|), within 2e-7: actors have it in every layer, and a call of
/// libm per number would cost more than all else. Infinity and NaN give NaN: both mean that learning
/// diverged.
inline Vector hyperbolic_tangent(Vector x) {
  const Vector twice = reinterpret_cast<Vector>(reinterpret_cast<Integers>(x + x) & same(0x7fffffff));
  const Integers small = twice < all(30);
  const Vector y = -reinterpret_cast<Vector>((reinterpret_cast<Integers>(twice) & small) |
                                             (reinterpret_cast<Integers>(all(30)) & ~small));
  // exp(y) = 2^k exp(f), |f| <= ln(2) / 2.
  const Integers k = __builtin_convertvector(y * all(1.442695041F) - all(0.5F), Integers);
  const Vector kf = __builtin_convertvector(k, Vector);
  const Vector f = (y - kf * all(0.693145752F)) - kf * all(1.42860677e-6F);
  Vector e = all(1.0F / 720);
  e = e * f + all(1.0F / 120);
  e = e * f + all(1.0F / 24);
  e = e * f + all(1.0F / 6);
  e = e * f + all(0.5F);
  e = e * f + all(1);
  e = e * f + all(1);
  e *= reinterpret_cast<Vector>((k + same(127)) << 23);
  const Vector t = (all(1) - e) / (all(1) + e) + (x - x);
  return reinterpret_cast<Vector>(reinterpret_cast<Integers>(t) |
                                  (reinterpret_cast<Integers>(x) & same(static_cast<int>(0x80000000U))));
}
