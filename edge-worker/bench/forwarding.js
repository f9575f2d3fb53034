// What a Worker costs that only sends requests on.
export default {
  fetch(request, environment) {
    const { pathname, search } = new URL(request.url);
    return fetch(environment.ORIGIN + pathname + search, request);
  },
};
