"""The API's description, made of the route table and the classes that it names: for programs, and as a page to read."""
