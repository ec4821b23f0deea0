// Takes back what network_kernels.inl was configured with.
#undef KERNEL_NAMESPACE
#undef KERNEL_NAME
#undef KERNEL_TARGET
#undef KERNEL_WIDTH
#undef Vec
#undef LOAD
#undef STORE
#undef LOAD_HALF
#undef STORE_HALF
#undef SPLAT
#undef FMA
#undef MIN
#undef MAX
#undef QUARTERS
