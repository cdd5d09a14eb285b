#pragma once

/// \file
/// The one place the version is written: CMake reads it from here.

#define DRIFTLESS_VERSION_MAJOR 0  ///< of MAJOR.MINOR.PATCH
#define DRIFTLESS_VERSION_MINOR 2  ///< while MAJOR is 0, it grows with every change that can break a caller
#define DRIFTLESS_VERSION_PATCH 0  ///< grows with changes that break nothing
