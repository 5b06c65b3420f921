//! gpuaas-store
