//! gpuaas-engine
