# Finds libtorch inside the `torch` package of ${Python_EXECUTABLE}.
#
# PyTorch's own TorchConfig.cmake insists on a CUDA toolkit when the package was
# built for CUDA; headers and two shared libraries are all we need. The package is
# located, not imported.
#
# Defines TorchWheel_DIR, TorchWheel_VERSION, TorchWheel_LIBRARY_DIR and the
# imported targets TorchWheel::c10, TorchWheel::torch_cpu and (when the package has
# it) TorchWheel::torch_cuda.

execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE TorchWheel_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)

if(TorchWheel_DIR AND EXISTS ${TorchWheel_DIR}/version.py)
  file(STRINGS ${TorchWheel_DIR}/version.py _version_line REGEX "^__version__ *=")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchWheel_VERSION "${_version_line}")
endif()
set(TorchWheel_LIBRARY_DIR ${TorchWheel_DIR}/lib)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel
  REQUIRED_VARS TorchWheel_DIR TorchWheel_VERSION VERSION_VAR TorchWheel_VERSION)

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::torch_cpu)
  foreach(_library c10 torch_cpu torch_cuda c10_cuda)
    set(_file ${TorchWheel_LIBRARY_DIR}/lib${_library}.so)
    if(EXISTS ${_file})
      add_library(TorchWheel::${_library} SHARED IMPORTED)
      set_target_properties(TorchWheel::${_library} PROPERTIES
        IMPORTED_LOCATION ${_file}
        INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1
        INTERFACE_INCLUDE_DIRECTORIES
          "${TorchWheel_DIR}/include;${TorchWheel_DIR}/include/torch/csrc/api/include")
    endif()
  endforeach()
  set_property(TARGET TorchWheel::torch_cpu PROPERTY INTERFACE_LINK_LIBRARIES TorchWheel::c10)
endif()
