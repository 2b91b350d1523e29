//! The five IRs of Litz: data, build, print, parse, verify.
