// Products whose factors are rounded to bfloat16, two numbers in the place of one float, with AVX512_BF16: half
// the multiplications. Sums stay f32. For gru_kernels.inl, within its unnamed namespace.

/// A lane holds two k's numbers; their products are added to the sum.
struct Pairs {
  static constexpr size_t kDepth = 2;
  static constexpr float kRounding = 0x1p-8F;
  static Vector add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(
        reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
  }
  static void pack_left(size_t rows, const float* a, size_t a_step, size_t k_end, float* to);
  static void pack_right(const float* b, size_t b_step, size_t k_end, size_t n_end, float* to);

 private:
  /// 16 numbers of row k and of the one after it, if there is one; nearest even, NaN stays NaN.
  static __m512i two(const float* row, size_t step, bool both, __mmask16 which) {
    const auto rounded = [which](const float* at) {
      return _mm512_cvtepu16_epi32(
          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(which, at))));
    };
    const __m512i low = rounded(row);
    return both ? _mm512_or_si512(low, _mm512_slli_epi32(rounded(row + step), 16)) : low;
  }
};

void Pairs::pack_left(size_t rows, const float* a, size_t a_step, size_t k_end, float* to) {
  static_assert(kLanes == 2 * kRows);
  const size_t depth = (k_end + 1) / 2;
  for (size_t r = 0; r < rows; r += kLanes, to += kLanes * depth) {
    const auto which = static_cast<__mmask16>(rows - r < kLanes ? (1U << (rows - r)) - 1 : 0xffff);
    float *first = to, *second = to + kRows * depth;  // groups of kRows rows
    for (size_t k = 0; k < k_end; k += 2, first += kRows, second += kRows) {
      const __m512i v = two(a + k * a_step + r, a_step, k + 1 < k_end, which);
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(first), _mm512_castsi512_si256(v));
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(second), _mm512_extracti64x4_epi64(v, 1));
    }
  }
}

void Pairs::pack_right(const float* b, size_t b_step, size_t k_end, size_t n_end, float* to) {
  for (size_t n0 = 0; n0 < n_end; n0 += kPanel) {
    const size_t n1 = n0 + kPanel < n_end ? n0 + kPanel : n_end;
    for (size_t k = 0; k < k_end; k += 2)
      for (size_t n = n0; n < n1; n += kLanes, to += kLanes)
        _mm512_storeu_si512(to, two(b + k * b_step + n, b_step, k + 1 < k_end, 0xffff));
  }
}
