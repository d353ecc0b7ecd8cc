// product.cc
#include "product.h"

#include <cstring>
#include <sstream>

#include "cublaslt.h"
#include "gpu.h"

namespace hetero {
namespace {

constexpr int kMostAlgorithms = 16;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(Algorithm::data));

cudaDataType_t type_of(int32_t dtype) {
  switch (dtype) {
  case HT_F32: return CUDA_R_32F;
  case HT_BF16: return CUDA_R_16BF;
  case HT_F16: return CUDA_R_16F;
  }
  throw Unsupported("element type " + std::to_string(dtype) + ", want f32, bf16 or f16");
}

// The library's description of a product. It lies in host memory of this program, so its creation allocates nothing.
class Description {
public:
  Description(const ProductShape &s, void *bias) : lt_(cublaslt()) {
    const char *const what = "describe a matrix product";
    check(lt_.init_desc(&desc, sizeof desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    if (s.epilogue != ProductShape::none) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE,
          uint32_t{s.epilogue == ProductShape::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADB});
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    const int64_t a_rows = s.transpose_a ? s.k : s.m;
    layout(a, s.factors, a_rows, s.transpose_a ? s.m : s.k, a_rows);
    layout(b, s.factors, s.b_rows(), s.b_columns(), s.b_stride ? s.b_stride : s.b_rows());
    layout(d, s.result, s.m, s.n, s.m);
  }

  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, d;

private:
  template <class T> void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(lt_.set_desc(&desc, attribute, &value, sizeof value), "describe a matrix product");
  }
  void layout(cublasLtMatrixLayoutOpaque_t &l, int32_t dtype, int64_t rows, int64_t columns, int64_t stride) {
    check(lt_.init_layout(&l, sizeof l, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                          stride),
          "describe a matrix");
  }

  const CublasLt &lt_;
};

cublasLtMatmulPreferenceOpaque_t preference_for(int align) {
  const CublasLt &lt = cublaslt();
  cublasLtMatmulPreferenceOpaque_t preference;
  check(lt.init_preference(&preference, sizeof preference), "query the algorithms of a matrix product");
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(lt.set_preference(&preference, attribute, &value, sizeof value), "query the algorithms of a matrix product");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      uint64_t{device_facts().major >= 9 ? 32u << 20 : 4u << 20}); // as cuBLASLt's manual recommends
  // Permit only the scheme that adds the parts of a sum in f32 and in a fixed order. The other schemes round the parts
  // to D's type, or add them in place.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, static_cast<uint32_t>(align));
  return preference;
}

// Returns the configuration as text, without attributes that this version of the library does not support.
std::string name_of(const cublasLtMatmulAlgo_t &algorithm) {
  std::ostringstream text;
  auto add = [&](const char *name, cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    size_t written = 0;
    if (cublaslt().config(&algorithm, attribute, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS)
      text << name << value;
  };
  add("a", CUBLASLT_ALGO_CONFIG_ID, int32_t{});
  add(" tile", CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{});
  add(" stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{});
  add(" split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{});
  add(" reduce", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, uint32_t{});
  add(" swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{});
  add(" custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{});
  add(" inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, uint16_t{});
  add(" cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{});
  return text.str();
}

} // namespace

const char *type_name(int32_t dtype) { return dtype == HT_F32 ? "f32" : dtype == HT_BF16 ? "bf16" : "f16"; }

std::string products_by() { return cublaslt().version; }

std::string ProductShape::text() const {
  std::ostringstream s;
  s << "product m" << m << " n" << n << " k" << k << ' ' << type_name(factors) << (transpose_a ? " T" : " N")
    << (transpose_b ? "T " : "N ") << type_name(result)
    << (epilogue == bias ? " bias"
        : epilogue       ? " sums"
                         : "");
  if (b_stride) s << " b" << b_stride;
  if (add) s << " add";
  return s.str();
}

std::vector<Algorithm> algorithms_for(const ProductShape &shape, int align) {
  // The library derives the alignment of the bias from its address, so pass an address with this alignment.
  Description x(shape, reinterpret_cast<void *>(static_cast<uintptr_t>(align)));
  cublasLtMatmulPreferenceOpaque_t preference = preference_for(align);
  cublasLtMatmulHeuristicResult_t results[kMostAlgorithms] = {};
  int count = 0;
  const cublasStatus_t status = cublaslt().heuristic(cublaslt_handle(), &x.desc, &x.a, &x.b, &x.d, &x.d, &preference,
                                                     kMostAlgorithms, results, &count);
  // The library may report an unsupported epilogue as an invalid argument.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
      (status == CUBLAS_STATUS_INVALID_VALUE && shape.epilogue != ProductShape::none))
    return {};
  check(status, "query the algorithms of a matrix product");
  std::vector<Algorithm> list;
  for (int i = 0; i < count; i++) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    Algorithm algorithm{name_of(results[i].algo), static_cast<int64_t>(results[i].workspaceSize), {}};
    for (const Algorithm &other : list) // the order distinguishes algorithms with equal attributes
      if (other.name == algorithm.name) algorithm.name += "'";
    std::memcpy(algorithm.data.data(), &results[i].algo, sizeof results[i].algo);
    list.push_back(std::move(algorithm));
  }
  return list;
}

void run_product(const ProductShape &shape, const Algorithm &algorithm, const ProductOperands &x, cudaStream_t stream) {
  static const float one = 1, zero = 0;
  Description d(shape, x.bias);
  cublasLtMatmulAlgo_t algo;
  std::memcpy(&algo, algorithm.data.data(), sizeof algo);
  check(cublaslt().matmul(cublaslt_handle(), &d.desc, &one, x.a, &d.a, x.b, &d.b, shape.add ? &one : &zero, x.d, &d.d,
                          x.d, &d.d, &algo, x.workspace, static_cast<size_t>(algorithm.workspace), stream),
        "run a matrix product");
}

} // namespace hetero
