#!/bin/bash
# Every kind of kernel and the public models on a GPU, beside eager and Inductor.
#
#   benchmarks/cuda/run.sh prepare    where Intarsia is built; needs no GPU. Writes
#                                     build/cuda (under 64 MiB): programs compiled for
#                                     sm_80 and sm_90, their inputs, eager's results on
#                                     the CPU, and the runtime
#   benchmarks/cuda/run.sh [OUT]      where the GPU is: this checkout with build/cuda, g++,
#                                     python3 with PyTorch 2.11 or later. Builds the part
#                                     of the runtime that includes PyTorch's headers, runs
#                                     all, and writes OUT/cuda.json (default: build/cuda)
#
# ARCHS names other GPUs for `prepare` ("sm_100,sm_120"), PYTHON another interpreter,
# SECONDS_LEFT the time for measuring (default 200).
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=build/cuda
python=${PYTHON:-python3}

if [ "${1:-}" = prepare ]; then
  rm -rf $folder && mkdir -p $folder/lib $folder/bin $folder/programs
  cp build/lib/libIntarsiaRuntime.so $folder/lib/
  g++ -std=c++20 -O2 -Iinclude benchmarks/cuda/measure.cpp -o $folder/bin/measure \
    -L$folder/lib -lIntarsiaRuntime -Wl,-rpath,'$ORIGIN/../lib'
  strip $folder/lib/libIntarsiaRuntime.so $folder/bin/measure
  $python benchmarks/cuda/prepare.py $folder/programs --archs "${ARCHS:-sm_80,sm_90}"
  du -sh $folder
  exit
fi

out=${1:-$folder}
[ -d $folder/programs ] || { echo "run.sh: $folder is missing: run.sh prepare makes it" >&2; exit 2; }
torch=$($python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
shim=$folder/lib/libIntarsiaTorch.so
version=$($python -c "exec(open('$torch/version.py').read()); print(__version__)")
if [ "$(cat $shim.version 2>/dev/null)" != "$version" ]; then
  echo "building $shim for PyTorch $version"
  start=$SECONDS
  mkdir -p $folder/objects
  printf '%s\n' lib/Runtime/Torch/*.cpp | xargs -P "$(nproc)" -I{} sh -c \
    "g++ -std=c++20 -O1 -fPIC -D_GLIBCXX_USE_CXX11_ABI=1 -I. -Iinclude -I$torch/include \
       -I$torch/include/torch/csrc/api/include -c {} -o $folder/objects/\$(basename {}).o"
  g++ -shared $folder/objects/*.o -o $shim -L"$torch/lib" -ltorch_cpu -lc10 -Wl,-rpath,"$torch/lib"
  echo "$version" > $shim.version
  echo "built in $((SECONDS - start)) s"
fi
mkdir -p "$out"
exec $python benchmarks/cuda/measure.py $folder "$out/cuda.json"
