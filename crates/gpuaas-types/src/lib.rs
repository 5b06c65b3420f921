//! gpuaas-types
