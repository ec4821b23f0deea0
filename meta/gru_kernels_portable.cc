#define FLASH_KERNELS portable
#define FLASH_LANES 4
#define FLASH_ROWS 4
#include "meta/gru_kernels.inl"
