/* Runs a model with one float32 input from C: run_model_c MODEL.pt2 SIZE... */
#include <intarsia-c/Runtime.h>

#include <stdio.h>
#include <stdlib.h>

static void check(IntarsiaStatus status) {
  if (status == INTARSIA_SUCCESS)
    return;
  fprintf(stderr, "run_model_c: %s\n", intarsiaErrorMessage());
  exit(1);
}

int main(int argc, char **argv) {
  IntarsiaModel *model;
  IntarsiaTensor *input, *outputs[8], *plain;
  int64_t sizes[8], count = 1;
  size_t rank = (size_t)(argc - 2), results;
  float *data;
  if (argc < 2 || rank > 8) {
    fprintf(stderr, "usage: run_model_c MODEL.pt2 SIZE... (up to 8)\n");
    return 2;
  }
  check(intarsiaModelLoad(argv[1], NULL, 0, &model));
  for (size_t i = 0; i < rank; ++i)
    count *= sizes[i] = atoll(argv[i + 2]);
  check(intarsiaTensorCreate(INTARSIA_FLOAT32, rank, sizes, &input));
  check(intarsiaTensorData(input, (void **)&data));
  for (int64_t i = 0; i < count; ++i)
    data[i] = (float)i;

  results = intarsiaModelOutputCount(model);
  check(intarsiaModelRun(model, (const IntarsiaTensor *const *)&input, 1, outputs, results));
  for (size_t r = 0; r < results; ++r) {
    IntarsiaDType dtype;
    check(intarsiaTensorContiguous(outputs[r], &plain));
    check(intarsiaTensorDType(plain, &dtype));
    check(intarsiaTensorRank(plain, &rank));
    check(intarsiaTensorShape(plain, sizes, NULL));
    check(intarsiaTensorData(plain, (void **)&data));
    count = 1;
    for (size_t i = 0; i < rank; ++i)
      count *= sizes[i];
    printf("dtype %d:", dtype);
    for (int64_t i = 0; dtype == INTARSIA_FLOAT32 && i < count; ++i)
      printf(" %g", data[i]);
    printf("\n");
    intarsiaTensorDestroy(plain);
    intarsiaTensorDestroy(outputs[r]);
  }
  intarsiaTensorDestroy(input);
  intarsiaModelDestroy(model);
  return 0;
}
