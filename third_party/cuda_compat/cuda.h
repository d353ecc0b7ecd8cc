/* cuda.h: includes the header of CUDA 12 or 13, and restores the names of CUDA 11 that gorgonia.org/cu uses.
 *
 * In CUDA, a macro maps the name of a function to its newest version. If the arguments of the newest version differ
 * from those that cu passes, this header maps the name to the older version. Drivers support old versions permanently.
 * */
#ifndef HETERO_CUDA_COMPAT_H
#define HETERO_CUDA_COMPAT_H

#include_next <cuda.h>

#if CUDA_VERSION >= 12000

/* Architectures that were removed from the enumeration. Current drivers never return them. */
#define CU_TARGET_COMPUTE_20 20
#define CU_TARGET_COMPUTE_21 21

#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#define CUDA_KERNEL_NODE_PARAMS CUDA_KERNEL_NODE_PARAMS_v1
CUresult cuGraphAddKernelNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS_v1 *);
CUresult cuGraphKernelNodeGetParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1 *);
CUresult cuGraphKernelNodeSetParams(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1 *);

#endif

#if CUDA_VERSION >= 13000

#undef cuCtxCreate
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
#define cuCtxCreate cuCtxCreate_v2

#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphRemoveDependencies
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode, CUgraphNode *, size_t *);

#endif

#endif
