//! gpuaas-core
