//! gpuaas-api
