#pragma once

// The one place the version is written: CMake reads it from here.
#define DRIFTLESS_VERSION_MAJOR 0
#define DRIFTLESS_VERSION_MINOR 1
#define DRIFTLESS_VERSION_PATCH 0
