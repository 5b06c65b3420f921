//! gpuaas-node-agent
