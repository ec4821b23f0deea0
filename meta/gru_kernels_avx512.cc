#define FLASH_KERNELS avx512
#define FLASH_LANES 16
#define FLASH_ROWS 8
#include "meta/gru_kernels.inl"
