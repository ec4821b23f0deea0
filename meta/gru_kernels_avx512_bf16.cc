#include <immintrin.h>  // its functions are always inlined, in whatever file
#define FLASH_KERNELS avx512_bf16
#define FLASH_LANES 16
#define FLASH_ROWS 8
#define FLASH_BFLOAT16
#include "meta/gru_kernels.inl"
