"""The API's resources, one module each; every module has its own table ROUTES."""
