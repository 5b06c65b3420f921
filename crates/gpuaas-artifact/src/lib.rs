//! gpuaas-artifact
