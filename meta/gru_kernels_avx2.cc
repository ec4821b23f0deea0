#define FLASH_KERNELS avx2
#define FLASH_LANES 8
#define FLASH_ROWS 4
#include "meta/gru_kernels.inl"
