# The CMake package of the runtime, for programs outside this tree: in the build
# folder, and installed beside the libraries.
include(CMakePackageConfigHelpers)
set(package intarsia/lib/cmake/Intarsia)
set(headers intarsia/include)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/IntarsiaConfig.cmake.in
  ${PROJECT_BINARY_DIR}/IntarsiaConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/IntarsiaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

add_library(IntarsiaRuntimeHeaders INTERFACE)
target_include_directories(IntarsiaRuntimeHeaders INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${headers}>)
target_compile_features(IntarsiaRuntimeHeaders INTERFACE cxx_std_20)
target_link_libraries(IntarsiaRuntime PUBLIC IntarsiaRuntimeHeaders)
set_target_properties(IntarsiaRuntime PROPERTIES EXPORT_NAME Runtime)

install(TARGETS IntarsiaRuntime IntarsiaRuntimeHeaders EXPORT IntarsiaTargets
  LIBRARY DESTINATION intarsia/lib)
install(EXPORT IntarsiaTargets NAMESPACE Intarsia:: DESTINATION ${package})
export(EXPORT IntarsiaTargets NAMESPACE Intarsia:: FILE ${PROJECT_BINARY_DIR}/IntarsiaTargets.cmake)
install(FILES ${PROJECT_BINARY_DIR}/IntarsiaConfig.cmake
  ${PROJECT_BINARY_DIR}/IntarsiaConfigVersion.cmake DESTINATION ${package})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/intarsia ${PROJECT_SOURCE_DIR}/include/intarsia-c
  DESTINATION ${headers} FILES_MATCHING
  REGEX "include/(intarsia-c|intarsia/(Runtime|Plan|Support))/[A-Za-z]*\\.h$")
