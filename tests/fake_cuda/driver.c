// libcuda.so.1 for tests: it counts devices, and has nothing that makes a context.
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return getenv("FAKE_CUDA_INIT") ? atoi(getenv("FAKE_CUDA_INIT")) : 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuGetErrorName(int status, const char** name) { *name = "CUDA_ERROR_SYSTEM_NOT_READY"; return 0; }
int cuDeviceGetCount(int* count) {
  const char* named = getenv("CUDA_VISIBLE_DEVICES");
  *count = getenv("FAKE_CUDA_COUNT") ? atoi(getenv("FAKE_CUDA_COUNT")) : 1;
  if (!named) return 0;
  *count = *named ? 1 : 0;
  for (const char* p = named; *p; p++) *count += *p == ',';
  if (strstr(named, "MIG-")) *count = 1;
  return 0;
}
